"""`python -m keepfast`."""

from keepfast.cli.main import main

if __name__ == "__main__":
    main()
