# SPDX-License-Identifier: Apache-2.0
"""Prints the pivots and the sizes of the diagonal of R of LAPACK's geqp3, as SciPy calls it.

Usage: pivoted_qr_scipy.py ROWS COLS NUMBERS, row-major and separated by commas.
"""
import sys

import numpy
import scipy.linalg

rows, cols = int(sys.argv[1]), int(sys.argv[2])
matrix = numpy.array([float(x) for x in sys.argv[3].split(",")]).reshape(rows, cols)
r, pivots = scipy.linalg.qr(matrix, mode="r", pivoting=True)
for j, pivot in enumerate(pivots):
    print(pivot, repr(abs(float(r[j, j]))))
