package local

import (
	"fmt"
	"strconv"
	"strings"
)

// User is who commands run as where that is not who this process is, by the
// numbers of this process's namespace of users.
type User struct {
	UID, GID int
	// Groups are those beside GID.
	Groups []int
}

// maxID is the highest number of a user or group: the one above means "none".
const maxID = 1<<32 - 2

// ParseUser reads UID:GID[,GID...].
func ParseUser(s string) (User, error) {
	var u User
	var ids []int
	uid, groups, _ := strings.Cut(s, ":")
	for _, id := range append([]string{uid}, strings.Split(groups, ",")...) {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil || n > maxID {
			return u, fmt.Errorf("%q is not UID:GID[,GID...]", s)
		}
		ids = append(ids, int(n))
	}
	u.UID, u.GID, u.Groups = ids[0], ids[1], ids[2:]
	return u, nil
}

// String is what [ParseUser] reads.
func (u User) String() string {
	s := fmt.Sprintf("%d:%d", u.UID, u.GID)
	for _, g := range u.Groups {
		s += fmt.Sprintf(",%d", g)
	}
	return s
}
