#!/usr/bin/env pwsh
# Starts an agent's host with its name, its project and a terminal title that shows what waits:
#   bin/coder.ps1 --as Donna [--project PID] -- claude
# PowerShell may keep the `--` for itself; the launcher does not need it.
& prism coder @args
exit $LASTEXITCODE
