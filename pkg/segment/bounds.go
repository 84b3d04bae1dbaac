// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"fmt"
	"strconv"
	"strings"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// Bounds on an owner's report about one Env. A receiver rejects a report that exceeds them, so that what it stores and forwards fits into a
// frame.
const (
	MaxName    = 253       // bytes of a DNS name
	MaxString  = 1024      // bytes of any other text
	MaxUID     = 128       // bytes of a uid
	MaxSize    = 1<<16 - 1 // of a segment, as returned by Size; a hub stores it in 16 bits
	MaxMembers = 1<<8 - 1  // the CRD allows 32; the numbering of members in views depends on this bound
	MaxNamed   = 1 << 13   // bytes of the names of other clusters: the CRD allows 256, of 30 bytes each
)

// ItemSize is the size of a segment or a member without its texts. It is at least what its numbers take on the wire.
const ItemSize = 192

// maxQuoted bounds how much of a wrong value an error shows.
const maxQuoted = 64

// Size returns an upper bound on the size of a segment on the wire.
func Size(p *federationv1.EnvSegment) int {
	n := ItemSize + len(p.GetKey().GetNamespace()) + len(p.GetKey().GetName()) + len(p.GetUid()) + len(p.GetTemplate()) +
		len(p.GetDefaultInstanceType()) + len(p.GetFault()) + len(p.GetNamed())
	for _, m := range p.GetMembers() {
		n += ItemSize + len(m.GetName()) + len(m.GetInstanceType()) + len(m.GetScalingGroup()) + len(m.GetImage())
	}
	return n
}

// ValidName reports whether a text is a DNS name, as Kubernetes defines it for objects: at most 253 bytes of a-z, 0-9, - and .,
// each part between dots beginning and ending with a letter or digit.
func ValidName(s string) bool {
	if len(s) == 0 || len(s) > MaxName {
		return false
	}
	edge := true // at the beginning of a part
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			edge = false
		case c == '-' && !edge:
		case c == '.' && !edge && s[i-1] != '-':
			edge = true
		default:
			return false
		}
	}
	return !edge && s[len(s)-1] != '-'
}

func checkName(field, value string) error {
	if ValidName(value) {
		return nil
	}
	return fmt.Errorf("%w: %s %s is not valid, want a DNS name of at most %d bytes", ErrInvalid, field, Quote(value), MaxName)
}

func checkText(field, value string, most int) error {
	if len(value) <= most {
		return nil
	}
	return fmt.Errorf("%w: %s %s is not valid, want at most %d bytes", ErrInvalid, field, Quote(value), most)
}

// Quote quotes and truncates a value from outside for an error or a log.
func Quote(value string) string {
	if len(value) <= maxQuoted {
		return strconv.Quote(value)
	}
	return fmt.Sprintf("%q… (%d bytes)", value[:maxQuoted], len(value))
}

// checkSize rejects a segment that is too large before any of it is stored.
func checkSize(p *federationv1.EnvSegment) error {
	if n := len(p.GetMembers()); n > MaxMembers {
		return fmt.Errorf("%w: it has %d members, want at most %d", ErrInvalid, n, MaxMembers)
	}
	if n := Size(p); n > MaxSize {
		return fmt.Errorf("%w: it has %d bytes, want at most %d", ErrInvalid, n, MaxSize)
	}
	if err := checkText("uid", p.GetUid(), MaxUID); err != nil {
		return err
	}
	if err := checkText("template", p.GetTemplate(), MaxName); err != nil {
		return err
	}
	if err := checkText("default_instance_type", p.GetDefaultInstanceType(), MaxName); err != nil {
		return err
	}
	return checkText("fault", p.GetFault(), MaxString)
}

// checkNamed checks a list of names, unless it equals the known one.
func checkNamed(list, known string) error {
	if list == known || list == "" {
		return nil
	}
	if err := checkText("named", list, MaxNamed); err != nil {
		return err
	}
	for name := range strings.SplitSeq(list, ",") {
		if err := checkName("named", name); err != nil {
			return err
		}
	}
	return nil
}

// checkMember checks a member. It skips its name if it equals the known one.
func checkMember(p *federationv1.MemberSegment, known string) error {
	if name := p.GetName(); name != known || name == "" {
		if err := checkName("member", name); err != nil {
			return err
		}
	}
	if err := checkText("instance_type", p.GetInstanceType(), MaxName); err != nil {
		return err
	}
	if err := checkText("scaling_group", p.GetScalingGroup(), MaxName); err != nil {
		return err
	}
	return checkText("image", p.GetImage(), MaxString)
}
