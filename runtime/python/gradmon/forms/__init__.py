# SPDX-License-Identifier: Apache-2.0
"""The forms that rows are kept in: CSV files, an SQLite database, TensorBoard's event files. Each module
reads the rows of one form into the same table."""
