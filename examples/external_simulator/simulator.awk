# Fills in the rewards of trials in a CSV file: number,calls,servers,reward
#
# Every call takes four minutes on average and goes to the server that is free first. A server costs 25 an hour, and an
# hour of waiting costs the callers 60.

BEGIN { FS = OFS = "," }

NR == 1 { print; next }

{
    calls = $2; servers = $3; hours = 8
    srand($1 + 1)  # each trial has its own random numbers, and the same ones if it is run again
    split("", free)
    for (time = exponential(calls); time < hours; time += exponential(calls)) {
        first = 1
        for (i = 2; i <= servers; i++) if (free[i] < free[first]) first = i
        start = free[first] > time ? free[first] : time
        waited[NR] += start - time
        free[first] = start + exponential(15)
    }
    $4 = 25 * servers + 60 * waited[NR] / hours
    print
}

function exponential(rate) { return -log(1 - rand()) / rate }
