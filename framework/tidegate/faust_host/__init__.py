"""Hosts Faust beside the engine: how a Faust app boots, and its agents and tables in the same worker. Only this package
imports Faust, and only when an app uses it.

hosted_app      the Faust app of a tidegate.App
boot            which services of the supervised tree run, the engine's among them
config          from Tidegate's settings to those of Faust's clients
shared_topic    a topic that services and agents share
transport       Faust's consumer: it reads committed records only
reply_consumer  where the answers to `agent.ask` arrive
supervision     what happens to an agent that fails
worker          what `faust worker` starts
cli             how `faust -A` finds the app
types           types of Faust's that the methods of an App name
"""
