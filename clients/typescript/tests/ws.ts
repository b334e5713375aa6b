// The WebSocket of the package `ws`, for Node before 22.

import WebSocket from "ws";

export function connectWs(url: string, headers: { [name: string]: string }): globalThis.WebSocket {
  return new WebSocket(url, { headers }) as unknown as globalThis.WebSocket;
}
