"""The warm interpreter that workers are forked from, and the way of a fork into its jail."""
