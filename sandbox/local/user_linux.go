package local

import (
	"os"
	"syscall"

	"github.com/controld/controld/sandbox/local/thread"
)

// asSelf runs do where files are reached as this process's own user, who may not
// be whom its threads reach them as: it is the one that is not the commands'.
func asSelf(do func()) {
	thread.Spend(func() {
		thread.Effective(os.Getuid(), os.Getgid())
		do()
	})
}

// asIs runs do.
func asIs(do func()) { do() }

// private is how the state directory is reached, beside commands of this user.
func (u *User) private() func(do func()) {
	if u == nil {
		return asIs
	}
	return asSelf
}

// credential is how a process is started as the user; nil where there is none.
func (u *User) credential() *syscall.Credential {
	if u == nil {
		return nil
	}
	c := &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
	for _, g := range u.Groups {
		c.Groups = append(c.Groups, uint32(g))
	}
	return c
}
