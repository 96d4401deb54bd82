package rpc

import (
	"encoding/binary"
	"hash/maphash"
	"strings"
)

// keyField is the parameter by which a call is known again.
const keyField = "request_key"

// uuid reads a UUID, in lower case.
func (d *decoder) uuid() string {
	s := strings.ToLower(d.str())
	if !isUUID(s) {
		d.mismatch("must be a UUID")
	}
	return s
}

func isUUID(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (c == '-') || !dash && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(s) == 36
}

// requestKey returns where the params hold their key, nil where they have none.
func requestKey(p Params) *string {
	switch p := p.(type) {
	case *ReadParams:
		return &p.Options.RequestKey
	case *WriteParams:
		return &p.Options.RequestKey
	case *MkdirParams:
		return &p.Options.RequestKey
	case *RmParams:
		return &p.Options.RequestKey
	case *ExecParams:
		return &p.Options.RequestKey
	}
	return nil
}

// RequestKey returns the key of a call, empty where it has none.
func RequestKey(p Params) string {
	if key := requestKey(p); key != nil {
		return *key
	}
	return ""
}

// DropRequestKey takes the key off a call, and what makes no sense without it.
func DropRequestKey(p Params) {
	if key := requestKey(p); key != nil {
		*key = ""
	}
	if p, ok := p.(*ExecParams); ok {
		p.Options.Detach = false
	}
}

// HashParams returns a hash that is the same for calls with one key which ask
// for the same, however they were written. p is changed meanwhile.
func HashParams(seed maphash.Seed, method string, p Params) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	h.WriteString(method)
	var content *[]byte
	switch p := p.(type) {
	case *WriteParams:
		content = &p.Content
	case *ExecParams:
		content = &p.Options.Stdin
	}
	if content != nil {
		// As it is: coded as JSON it would have to be measured first.
		whole := *content
		var sum [8]byte
		binary.LittleEndian.PutUint64(sum[:], maphash.Bytes(seed, whole))
		h.Write(sum[:])
		*content = nil
		defer func() { *content = whole }()
	}
	m := newMessage()
	defer m.release()
	p.encode(encoder{m})
	h.Write(m.buf)
	return h.Sum64()
}
