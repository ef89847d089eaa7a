"""What makes an app a Faust app: how it starts, and Faust's own agents and tables beside the engine.

hosting        the app as Faust sees it
strategy       which services of the supervised tree run, and ours among them
connecting     Faust's clients go where ours go: from our settings to Faust's
topics         a topic that services and agents share
transport      Faust's consumer, so that it reads what is committed, and forgets nothing that failed
replies        where the answers to `agent.ask` arrive
supervision    what happens to an agent that fails
worker         what `faust worker` starts
"""
