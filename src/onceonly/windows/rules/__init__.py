"""Rules of windows, pure: no Spark, no driver, no clock.

    spec            what the user says, and what it means for rows of known columns
    assigners       which windows a row belongs to
    triggers        when a result is written
    values          what is computed
    step            one epoch: state, rows and time in; rows and state out
    state           open windows, by key
    local_partials  partial results of few rows, in this process
    arrow_rows      result rows and state as rows of Arrow
    json_values     values as JSON

What a user writes is exported by ``onceonly.windows``.
"""
