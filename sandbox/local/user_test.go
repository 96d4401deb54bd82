package local

import "testing"

func TestParseUser(t *testing.T) {
	for _, s := range []string{"1000:1000", "0:0", "1:2,3,4", "4294967294:4294967294"} {
		if u, err := ParseUser(s); err != nil || u.String() != s {
			t.Errorf("%s: %v, %v", s, u, err)
		}
	}
	for _, s := range []string{"", "1000", "1000:", ":1000", "1000:1000,", "-1:0", "4294967295:0", "0:4294967295", "root:root", "1:2:3", "1:2 "} {
		if u, err := ParseUser(s); err == nil {
			t.Errorf("%q is %v", s, u)
		}
	}
}
