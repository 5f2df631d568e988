// SPDX-License-Identifier: Apache-2.0
// The program `hone`, and with the files of cli/torch `hone-torch`.
namespace hone::cli {
int run_program(int argc, char** argv);  // program.cc: returns the exit status
}

int main(int argc, char** argv) { return hone::cli::run_program(argc, argv); }
