// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
)

// A template with what docs/envs.md shows has Pods that are reset.
func TestTheDocumentedTemplateIsReset(t *testing.T) {
	page, err := os.ReadFile("../../../docs/envs.md")
	must.Succeed(t, err)
	_, section, _ := strings.Cut(string(page), "## What becomes of a released Pod")
	_, block, _ := strings.Cut(section, "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	var template v1alpha1.SandboxTemplate
	must.Succeed(t, yaml.UnmarshalStrict([]byte(block), &template))
	if len(template.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("read %+v from\n%s", template.Spec, block)
	}
	if reason := residue(&template.Spec.Template.Spec); reason != Resettable {
		t.Errorf("its Pods are replaced: %s", reason)
	}
}
