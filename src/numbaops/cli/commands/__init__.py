"""The commands: options and help. Each loads what does its work when it is called, so that help takes no time."""
