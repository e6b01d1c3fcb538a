"""Rules of windows, pure: no Spark, no driver, no clock.

    spec         the user's definition, resolved for rows of known columns
    assigners    windows of a row
    triggers     times at which a result is written
    values       aggregates of a window
    step         one epoch: state, rows and time in, rows and state out; partial results of few rows
    state        open windows, by key; they and result rows as rows of Arrow
    json_values  values as JSON

``onceonly.windows`` exports the classes for users.
"""
