#!/bin/sh
exec prism statusline "$@"
