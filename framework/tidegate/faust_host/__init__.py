"""Hosts Faust beside the engine: how a Faust app boots, and its agents and tables in the same worker.

app_base       the app as Faust sees it
boot           which services of the supervised tree run, the engine's among them
config         from Tidegate's settings to those of Faust's clients
topics         a topic that services and agents share
transport      Faust's consumer: it reads committed records only
replies        where the answers to `agent.ask` arrive
supervision    what happens to an agent that fails
validation     what a declaration may say
worker         what `faust worker` starts
"""
