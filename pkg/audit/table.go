// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"strings"
	"unicode"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/access"
)

// Call describes what a method does.
type Call struct {
	Verb, Resource string
	// Changes means that every call has a line. Other calls have a line only if they are refused as forbidden.
	Changes bool
}

// ours is the prefix of the public API's methods. Health checks and reflection have no lines.
const ours = "/atoll.sandbox.v1."

// Of returns the verb and the resource of a method, by its full name, or false if the method has no lines. Whether it changes something
// follows from the table of permissions. The verb is the first word of the method's name, because a permission to update also covers pause
// and resume, which an auditor must be able to tell apart.
func Of(method string) (Call, bool) {
	if !strings.HasPrefix(method, ours) {
		return Call{}, false
	}
	of := access.OfMethod(method)
	return Call{Verb: verb(method), Resource: of.Resource, Changes: of.Changes && method != activity}, true
}

// activity resets the idle timeout of a sandbox, as often as its caller likes. It changes nothing that matters to an auditor.
const activity = sandboxv1.Sandboxes_TouchSandbox_FullMethodName

// verb returns the first word of a method's name in lower case.
func verb(method string) string {
	name := method[strings.LastIndexByte(method, '/')+1:]
	if i := strings.IndexFunc(name[min(1, len(name)):], unicode.IsUpper); i >= 0 {
		name = name[:i+1]
	}
	return strings.ToLower(name)
}
