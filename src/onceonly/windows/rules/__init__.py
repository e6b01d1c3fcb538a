"""Rules of windows, pure: no Spark, no driver, no clock.

    spec            ``Panes`` of the user, and its meaning for rows of known columns
    assigners       assign windows to a row
    triggers        decide when a result is written
    values          compute results
    step            one epoch: state, rows and time in, rows and state out
    state           open windows, by key
    local_partials  partial results of few rows, in this process
    arrow_rows      result rows and state as rows of Arrow
    json_values     values as JSON

``onceonly.windows`` exports the classes for users.
"""
