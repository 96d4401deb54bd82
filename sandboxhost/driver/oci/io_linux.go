package oci

import (
	"io"
	"os"
	"os/exec"
)

// logged gives a container no input, and a file for what it says: not a pipe,
// since it may outlive this process.
type logged struct{ file *os.File }

// Set implements runc.IO.
func (l logged) Set(cmd *exec.Cmd) { cmd.Stdout, cmd.Stderr = l.file, l.file }

// Close, Stdin, Stdout and Stderr implement runc.IO.
func (logged) Close() error          { return nil }
func (logged) Stdin() io.WriteCloser { return nil }
func (logged) Stdout() io.ReadCloser { return nil }
func (logged) Stderr() io.ReadCloser { return nil }
