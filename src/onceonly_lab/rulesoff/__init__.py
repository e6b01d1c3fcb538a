"""Switch off each rule of recovery and comparison in the source.

The lab then finds the worlds that notice.
"""
