//go:build !linux

package dataport

import (
	"net"
	"os"
	"syscall"

	"github.com/controld/controld/sandbox"
)

// No file changes hands on this system.

func receiveRights(*net.UnixConn, []byte, *[]*os.File) (n int, lost bool, err error) {
	return 0, false, errUnsupported
}

func sendRights(*net.UnixConn, []byte, int) error { return errUnsupported }

func (PassRules) check(int, bool) error { return errUnsupported }

func versionOf(int) (sandbox.FileVersion, error) { return sandbox.FileVersion{}, errUnsupported }

func (*Passed) sendTo(syscall.Conn, int64) (int64, error) { return 0, errUnsupported }

func (*Passed) fillFrom(syscall.Conn, int64) (int64, error) { return 0, errUnsupported }
