// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/validate"
)

// DefaultPrefix is the default prefix of the names of impersonated users and groups.
const DefaultPrefix = "atoll:"

const (
	maxName   = 256
	maxGroups = 64
)

// ValidPrefix is the grammar of prefixes.
const ValidPrefix = "1 to 63 of a-z, 0-9, . and -, then a colon; not system:"

var prefixGrammar = regexp.MustCompile(`^[a-z0-9][-.a-z0-9]{0,61}:$`)

// CheckPrefix rejects a prefix that could turn a name into one of the cluster's own.
func CheckPrefix(prefix string) error {
	if !prefixGrammar.MatchString(prefix) || prefix == "system:" {
		return fmt.Errorf("%q is not valid, want %s", prefix, ValidPrefix)
	}
	return nil
}

// Identity is the impersonated identity of a request.
type Identity struct {
	User   string
	Groups []string
}

// identity returns the names to impersonate: the hub's names with the prefix.
func identity(prefix, user string, groups []string) (Identity, error) {
	if err := checkName("user", user, "user:", "key:"); err != nil {
		return Identity{}, err
	}
	if len(groups) > maxGroups {
		return Identity{}, problem.InvalidField("groups", fmt.Sprintf("%d groups", len(groups)), fmt.Sprintf("at most %d", maxGroups))
	}
	out := Identity{User: prefix + user}
	for _, group := range groups {
		if err := checkName("groups", group, "group:", "team:"); err != nil {
			return Identity{}, err
		}
		out.Groups = append(out.Groups, prefix+group)
	}
	return out, nil
}

// checkName requires one of the kinds before a name, because a user and a key, or a group and a team, may have equal names.
func checkName(field, name string, kinds ...string) error {
	valid := fmt.Sprintf("%sNAME, at most %d bytes without control characters", strings.Join(kinds, "NAME or "), maxName)
	for _, kind := range kinds {
		rest, ok := strings.CutPrefix(name, kind)
		if ok && rest != "" && strings.TrimSpace(rest) == rest && len(name) <= maxName && utf8.ValidString(name) &&
			!strings.ContainsFunc(rest, unicode.IsControl) {
			return nil
		}
	}
	return problem.InvalidField(field, validate.Clip(name), valid)
}
