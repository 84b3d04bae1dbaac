// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"strings"
	"unicode"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/access"
)

// Call is what a method does.
type Call struct {
	Verb, Resource string
	// Changes has a line for each call. Other calls have one only where they are refused as forbidden.
	Changes bool
}

// ours is the prefix of the methods of the public API; health checks and reflection have no lines.
const ours = "/atoll.sandbox.v1."

// Of returns what a method does, by its full name; false for a method that has no lines. The table of permissions says which calls
// change something. The verb is the first word of the method's name: a permission to update covers pause and resume, which an auditor
// tells apart.
func Of(method string) (Call, bool) {
	if !strings.HasPrefix(method, ours) {
		return Call{}, false
	}
	of := access.OfMethod(method)
	return Call{Verb: verb(method), Resource: of.Resource, Changes: of.Changes && method != activity}, true
}

// activity keeps a sandbox from its idle timeout, as often as its caller likes. It changes nothing that an auditor asks about.
const activity = sandboxv1.Sandboxes_TouchSandbox_FullMethodName

// verb is the first word of a method's name, in lower case.
func verb(method string) string {
	name := method[strings.LastIndexByte(method, '/')+1:]
	if i := strings.IndexFunc(name[min(1, len(name)):], unicode.IsUpper); i >= 0 {
		name = name[:i+1]
	}
	return strings.ToLower(name)
}
