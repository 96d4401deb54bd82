package server

import "testing"

func TestIDKey(t *testing.T) {
	for _, same := range [][]string{
		{`"a"`, `"\u0061"`}, {"100", "1e2", "100.0", "1.0E2"}, {"0", "-0", "0.0", "-0.0"}, {`"\/"`, `"/"`},
	} {
		for _, id := range same[1:] {
			if idKey([]byte(id)) != idKey([]byte(same[0])) {
				t.Errorf("%s and %s are taken for two ids", same[0], id)
			}
		}
	}
	seen := map[string]string{}
	for _, id := range []string{"", "null", "1", `"1"`, "1.5", "-1", "9007199254740993", "9007199254740992", "1e400", `"1e2"`, "1e2", `""`, `"null"`} {
		key := idKey([]byte(id))
		if other, twice := seen[key]; twice {
			t.Errorf("%s and %s are taken for one id", id, other)
		}
		seen[key] = id
	}
}
