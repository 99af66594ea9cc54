"""`python -m iomodel`."""

from iomodel.cli import main

if __name__ == "__main__":
    main()
