// SPDX-License-Identifier: Apache-2.0

package secretenv

import (
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"navix.sh/atoll/pkg/clip"
)

// maxRules bounds --sandbox-secrets.
const maxRules = 1000

const validRule = "NAMESPACE/PATTERN: a namespace, and the name of a Secret, in which * stands for any characters"

// Rules determine which Secrets sandboxes may use.
type Rules []rule

type rule struct{ namespace, pattern string }

// ParseRules parses the values of --sandbox-secrets.
func ParseRules(values []string) (Rules, error) {
	if len(values) > maxRules {
		return nil, fmt.Errorf("%d values, want %d at most", len(values), maxRules)
	}
	rules := make(Rules, 0, len(values))
	for _, value := range values {
		namespace, pattern, _ := strings.Cut(value, "/")
		if len(validation.IsDNS1123Label(namespace)) > 0 || pattern == "" ||
			len(validation.IsDNS1123Subdomain(strings.ReplaceAll(pattern, "*", "x"))) > 0 {
			return nil, fmt.Errorf("%q is not valid, want %s", clip.Text(value, 100), validRule)
		}
		rules = append(rules, rule{namespace, pattern})
	}
	return rules, nil
}

// allow reports whether sandboxes of a namespace may have a Secret.
func (r Rules) allow(namespace, name string) bool {
	for _, one := range r {
		if one.namespace != namespace {
			continue
		}
		if ok, err := path.Match(one.pattern, name); ok && err == nil {
			return true
		}
	}
	return false
}
