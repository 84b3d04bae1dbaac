// SPDX-License-Identifier: Apache-2.0

// Package version names the build. The linker sets Version; without that, the module's build information is used.
package version

import "runtime/debug"

// Version is set with -ldflags "-X navix.sh/atoll/pkg/version.Version=…".
var Version = ""

// String returns the build's version, "dev" when nothing is known.
func String() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}
