"""Each rule of recovery and comparison switched off in the production code, by its source: which worlds notice?"""
