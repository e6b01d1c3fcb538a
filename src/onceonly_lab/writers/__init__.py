"""Random runs of several writers of one dataset.

They judge the dataset's event time. Broken designs violate its rules.
"""
