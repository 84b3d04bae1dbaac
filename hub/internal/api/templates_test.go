// SPDX-License-Identifier: Apache-2.0

package api

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// TestI14OnlyTheCatalogueNamesTemplates: no other message of the public API has a field for a template, which callers see that
// spec.visibility leaves out. A new one is filtered by package visibility, and listed here.
func TestI14OnlyTheCatalogueNamesTemplates(t *testing.T) {
	catalogue := []protoreflect.FullName{"atoll.sandbox.v1.Template", "atoll.sandbox.v1.PutTemplateRequest",
		"atoll.sandbox.v1.ListTemplatesResponse"}
	var walk func(messages protoreflect.MessageDescriptors)
	seen := 0
	walk = func(messages protoreflect.MessageDescriptors) {
		for i := range messages.Len() {
			message := messages.Get(i)
			walk(message.Messages())
			for j := range message.Fields().Len() {
				field := message.Fields().Get(j)
				if !strings.Contains(string(field.Name()), "template") {
					continue
				}
				if seen++; !slices.Contains(catalogue, message.FullName()) {
					t.Errorf("%s names a template", field.FullName())
				}
			}
		}
	}
	walk((&sandboxv1.Template{}).ProtoReflect().Descriptor().ParentFile().Messages())
	if seen != len(catalogue) {
		t.Errorf("found %d fields, want those of the catalogue", seen)
	}
}
