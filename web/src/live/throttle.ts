/** Runs `work` at once when it was not run for `milliseconds`, else once when they are over. */
export class Throttle {
  private timer: ReturnType<typeof setTimeout> | null = null;
  private last = -Infinity;

  constructor(
    private readonly work: () => void,
    private readonly milliseconds: number,
  ) {}

  ask(): void {
    if (this.timer !== null) return;
    const wait = this.last + this.milliseconds - performance.now();
    if (wait <= 0) this.run();
    else this.timer = setTimeout(() => this.run(), wait);
  }

  stop(): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
  }

  private run(): void {
    this.timer = null;
    this.last = performance.now();
    this.work();
  }
}
