// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"maps"
	"slices"
	"strings"

	"navix.sh/atoll/api/v1alpha1"
)

var (
	// reservedPrefixes are Atoll's. Below them, a user may set only v1alpha1.UserAnnotationKeys.
	reservedPrefixes = []string{"agentbox.navix.sh/", "agentbox.io/"}

	// toolPrefixes are those of labels and annotations that mark an object as a tool's own. If they were copied to a pool, the tool would
	// prune it.
	toolPrefixes = []string{
		"app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "kubectl.kubernetes.io/", "argocd.argoproj.io/",
		"meta.helm.sh/", "helm.sh/", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/",
	}
)

const (
	docsKey     = v1alpha1.SandboxTemplateDocsAnnotationKey
	poolDocsKey = v1alpha1.SandboxTemplatePoolDocsAnnotationKey //nolint:staticcheck // deprecated, and not inherited either
)

// Reserved reports whether a label or annotation is Atoll's, and not for users to set.
func Reserved(key string) bool {
	return !slices.Contains(v1alpha1.UserAnnotationKeys, key) && hasAnyPrefix(key, reservedPrefixes)
}

// OfTool reports whether a label or annotation marks an object as a tool's own.
func OfTool(key string) bool { return hasAnyPrefix(key, toolPrefixes) }

// Inheritable returns the labels or annotations that pools inherit from a template. It leaves out Atoll's, those of tools, and the
// template's documentation, of which every Env would have a copy per member.
func Inheritable(keys map[string]string) map[string]string {
	kept := map[string]string{}
	maps.Copy(kept, keys)
	maps.DeleteFunc(kept, func(key, _ string) bool {
		return Reserved(key) || OfTool(key) || key == docsKey || key == poolDocsKey
	})
	return kept
}

func hasAnyPrefix(key string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}
