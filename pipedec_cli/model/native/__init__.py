"""A decoder step in C++, compiled when it is first used; without a compiler plain operators serve."""
