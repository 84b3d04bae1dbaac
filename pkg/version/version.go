// SPDX-License-Identifier: Apache-2.0

// Package version provides the build's version. The linker sets Version; otherwise the module's build information is used.
package version

import "runtime/debug"

// Version is set with -ldflags "-X navix.sh/atoll/pkg/version.Version=…".
var Version = ""

// String returns the build's version, or "dev" if it is unknown.
func String() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}
