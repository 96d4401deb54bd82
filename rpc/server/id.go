package server

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
)

// idKey returns what an id is compared by. Ids are echoed as they were
// written, but "a" and "\u0061", 100 and 1e2 are the same id.
func idKey(raw []byte) string {
	switch {
	case len(raw) == 0:
		return ""
	case raw[0] == '"' && bytes.IndexByte(raw, '\\') >= 0:
		var s string
		if json.Unmarshal(raw, &s) == nil {
			return `"` + s + `"`
		}
	case raw[0] != '"' && bytes.ContainsAny(raw, ".eE"):
		n, err := strconv.ParseFloat(string(raw), 64)
		if err == nil && n == math.Trunc(n) && math.Abs(n) < 1<<53 {
			return strconv.FormatInt(int64(n), 10)
		}
	case string(raw) == "-0":
		return "0"
	}
	return string(raw)
}
