"""What each operation is: one file per family; traffic, time and tables follow from the op alone."""
