#!/bin/sh
# Learn from a simulator that reads and writes files and knows nothing of conbo, nor of Python:
#
#     sh learn.sh [rounds]
#
# Each round asks for four trials, lets awk simulate them, and tells the rewards. The study is in out/help_desk.db, so
# that calling this again goes on where it ended.
set -e
cd "$(dirname "$0")"
mkdir -p out

for round in $(seq "${1:-6}"); do
    conbo ask -n 4 --force -o out/batch.csv > out/ask.log
    awk -f simulator.awk out/batch.csv > out/results.csv
    conbo tell --file out/results.csv
done

conbo status --model
printf 'calls\n30\n60\n90\n' > out/states.csv
conbo policy --states out/states.csv
