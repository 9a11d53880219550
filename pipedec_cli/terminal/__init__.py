"""The commands and what they show: tables, progress and the live grid."""
