//go:build linux

package local

import (
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// path is the usual six folders.
const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// userName is looked up once: it reads files.
var userName = sync.OnceValue(func() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Getuid())
})

// environment returns a clean base and the caller's own on top, nothing of
// this process's. The word that is wrong is returned where one is.
func environment(home string, extra map[string]string) (env []string, wrong string) {
	if len(extra) == 0 {
		return []string{"HOME=" + home, "LANG=C.UTF-8", "PATH=" + path, "SHELL=/bin/sh", "TERM=dumb", "USER=" + userName()}, ""
	}
	base := map[string]string{
		"PATH": path, "HOME": home, "LANG": "C.UTF-8", "TERM": "dumb", "USER": userName(), "SHELL": "/bin/sh",
	}
	for name, value := range extra {
		if !validName(name) {
			return nil, "a name of the environment is no identifier"
		}
		if strings.IndexByte(value, 0) >= 0 {
			return nil, "a NUL in the environment"
		}
		base[name] = value
	}
	for name, value := range base {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env, ""
}

// validName tells whether s is [A-Za-z_][A-Za-z0-9_]*.
func validName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
