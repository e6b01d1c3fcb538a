"""What a user calls: ``exactly_once``, its arguments, and what it promises."""
