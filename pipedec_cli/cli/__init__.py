"""The command line: options made of settings, and commands: options → job → view."""
