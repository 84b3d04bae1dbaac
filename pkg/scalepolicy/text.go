// SPDX-License-Identifier: Apache-2.0

package scalepolicy

import (
	"strings"
)

// longestMessage bounds a message in a status.
const longestMessage = 256

func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > longestMessage {
		text = strings.ToValidUTF8(text[:longestMessage], "") + "…"
	}
	return text
}
