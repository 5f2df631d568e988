# SPDX-License-Identifier: Apache-2.0
"""Factors the matrix of `hone bench linalg` by SciPy's pivoted QR.

    python bench/peers/pivoted_qr.py --matrix FILE --rows 8192 --cols 256 --dtype f64 --threads 2

FILE holds the entries row by row; it is read before the first answer.
"""

import argparse
import os

from peer_loop import serve

TYPES = {"f32": "float32", "f64": "float64"}
SMALL = 256


def facts(numpy, matrix, q, r, pivots):
    """The measures of hone/bench/torch/linalg_work.h."""
    exact, basis, upper = (x.astype("float64") for x in (matrix, q, r))
    diagonal = numpy.abs(numpy.diagonal(r))
    least = 2 * float(numpy.finfo(matrix.dtype).eps) ** 0.95 * float(diagonal[0])
    return {
        "rel_error": float(numpy.linalg.norm(exact[:, pivots] - basis @ upper)
                           / numpy.linalg.norm(exact)),
        "orthogonality": float(numpy.linalg.norm(basis.T @ basis - numpy.eye(basis.shape[1]))),
        "detected_rank": int((diagonal > least).sum()),
    }


def start(options):
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import numpy
    import scipy
    import scipy.linalg

    matrix = numpy.fromfile(options.matrix, dtype=TYPES[options.dtype])
    matrix = numpy.asfortranarray(matrix.reshape(options.rows, options.cols))
    small = matrix[:SMALL, :SMALL].copy(order="F")

    def factor(a):
        return scipy.linalg.qr(a, mode="economic", pivoting=True, check_finite=False)

    greeting = {
        "provider": f"geqp3 of SciPy {scipy.__version__}",
        **facts(numpy, matrix, *factor(matrix)),
    }
    return greeting, lambda: factor(matrix), lambda: factor(small)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--matrix", required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--cols", type=int, required=True)
    parser.add_argument("--dtype", choices=TYPES, required=True)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    serve(start, options)


if __name__ == "__main__":
    main()
