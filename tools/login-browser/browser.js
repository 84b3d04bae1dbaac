// SPDX-License-Identifier: Apache-2.0

import { chromium } from "playwright-core";

const patience = 60_000;

function equal(what, got, want) {
  if (got !== want) throw new Error(`${what}: ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
}

const [where] = process.argv.slice(2);
const asked = new URL(where).searchParams;
equal("code_challenge_method", asked.get("code_challenge_method"), "S256");
const redirect = new URL(asked.get("redirect_uri"));
equal("host of the redirect", redirect.hostname, "127.0.0.1");

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: process.getuid() === 0 ? ["--no-sandbox"] : [],
  timeout: patience,
});
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(patience);
  const scripts = [];
  page.on("pageerror", (error) => scripts.push(String(error)));
  await page.goto(where);
  for (const password of ["wrong", process.env.LOGIN_PASSWORD]) {
    await page.fill("input[name=login]", process.env.LOGIN_USER);
    await page.fill("input[name=password]", password);
    await page.click("button[type=submit]");
    if (password === "wrong") {
      await page.waitForSelector("#login-error");
      equal("page after a wrong password", new URL(page.url()).origin, new URL(where).origin);
    }
  }
  await page.waitForURL((url) => url.origin === redirect.origin);
  console.log("LAST PAGE", await page.innerText("body"));
  console.log("STORED", JSON.stringify(await page.evaluate(() => [document.cookie, Object.keys(localStorage).length])));
  equal("errors of scripts", scripts.join("\n"), "");
} finally {
  await browser.close();
}
