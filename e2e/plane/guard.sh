# SPDX-License-Identifier: Apache-2.0
# Outlives the process that started it, to remove what it leaves behind.
# Arguments: the directory of the set, the process group of the set. Standard input: a pipe that its owner never writes.
read -r _
kill -KILL "-$2"
# The killed processes may take a moment to let go of the directory.
tries=0
until rm -rf "$1" && [ ! -e "$1" ]; do
	tries=$((tries + 1))
	[ "$tries" -ge 100 ] && exit 1
	sleep 0.1
done
