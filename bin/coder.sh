#!/bin/sh
# Starts an agent's host with its name, its project and a terminal title that shows what waits:
#   bin/coder.sh --as Donna [--project PID] -- claude
exec prism coder "$@"
