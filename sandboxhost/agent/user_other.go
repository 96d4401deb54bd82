//go:build !linux

package agent

import (
	"errors"

	"github.com/controld/controld/sandbox/local"
)

func become(local.User, *local.User, uint64) error { return errors.New("--user needs Linux") }
