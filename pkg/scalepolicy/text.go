// SPDX-License-Identifier: Apache-2.0

package scalepolicy

import "navix.sh/atoll/pkg/clip"

// longestMessage bounds a message in a status.
const longestMessage = 256

func short(text string) string { return clip.Text(clip.Line(text), longestMessage) }
