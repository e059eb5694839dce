// One stream for the whole page. What comes is gathered and handed on at most once per frame.
import type { Schemas } from "../api/client";

export type Change = Schemas["Change"];
/** `waiting`: not yet connected, or on the way back; `lost`: for longer than a few seconds. */
export type Link = "waiting" | "live" | "lost";

export interface Source {
  onopen: ((event: Event) => void) | null;
  onerror: ((event: Event) => void) | null;
  onmessage: ((event: MessageEvent<string>) => void) | null;
  readonly readyState: number;
  close(): void;
}

export interface World {
  open(url: string): Source;
  /** Calls back once, soon: with the next frame, or where no frames are drawn, a little later. */
  soon(then: () => void): void;
  later(then: () => void, milliseconds: number): () => void;
}

export interface Listener {
  onChanges(changes: Change[]): void;
  onResync(): void;
  onLink(link: Link): void;
}

const LOST_AFTER_MS = 4000;
const RETRY_MS = 2000;
const CLOSED = 2;

export class LiveStream {
  private source: Source | null = null;
  private gathered: Change[] = [];
  private seq = 0;
  private isDue = false;
  private wasLive = false;
  private isLost = false;
  private cancelLost: (() => void) | null = null;
  private cancelRetry: (() => void) | null = null;

  constructor(
    private readonly url: string,
    private readonly listener: Listener,
    private readonly world: World = browser,
  ) {}

  start(): void {
    this.source = this.world.open(this.seq ? `${this.url}?after=${this.seq}` : this.url);
    this.source.onopen = () => this.opened();
    this.source.onerror = () => this.failed();
    this.source.onmessage = (event) => this.heard(JSON.parse(event.data) as Change);
    this.cancelLost ??= this.world.later(() => this.lost(), LOST_AFTER_MS);
  }

  stop(): void {
    this.source?.close();
    this.source = null;
    this.cancelLost?.();
    this.cancelRetry?.();
    this.cancelLost = this.cancelRetry = null;
  }

  private opened(): void {
    this.cancelLost?.();
    this.cancelLost = null;
    this.listener.onLink("live");
    // Questions asked meanwhile have failed; and without a number to go on from, what was missed is unknown.
    if (this.isLost || (this.wasLive && !this.seq)) this.listener.onResync();
    this.isLost = false;
    this.wasLive = true;
  }

  private lost(): void {
    this.isLost = true;
    this.listener.onLink("lost");
  }

  private failed(): void {
    if (!this.isLost) this.listener.onLink("waiting");
    this.cancelLost ??= this.world.later(() => this.lost(), LOST_AFTER_MS);
    // A browser comes back by itself after a broken connection, but not after an answer like 503.
    if (this.source?.readyState === CLOSED) {
      this.cancelRetry = this.world.later(() => this.start(), RETRY_MS);
    }
  }

  private heard(change: Change): void {
    const wentBack = change.seq < this.seq;
    this.seq = change.seq;
    if (change.resync || wentBack) {
      this.gathered = [];
      this.listener.onResync();
      return;
    }
    this.gathered.push(change);
    if (this.isDue) return;
    this.isDue = true;
    this.world.soon(() => this.flush());
  }

  private flush(): void {
    this.isDue = false;
    const changes = this.gathered;
    this.gathered = [];
    if (changes.length) this.listener.onChanges(changes);
  }
}

const browser: World = {
  open: (url) => new EventSource(url),
  soon: (then) => {
    if (document.hidden) setTimeout(then, 500);
    else requestAnimationFrame(then);
  },
  later: (then, milliseconds) => {
    const timer = setTimeout(then, milliseconds);
    return () => clearTimeout(timer);
  },
};
